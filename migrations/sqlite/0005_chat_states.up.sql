-- What can be done with a chat (tidemark.ChatState): 'importing' or 'deleted'. NULL is a live chat.
ALTER TABLE chats ADD COLUMN state      TEXT;
ALTER TABLE chats ADD COLUMN deleted_at INTEGER;  -- NULL unless the state is 'deleted'

-- For how many days its messages are kept, NULL for as many as those of all chats. While hold is 1,
-- nothing of the chat expires, and it cannot be deleted.
ALTER TABLE chats ADD COLUMN keep_days INTEGER;
ALTER TABLE chats ADD COLUMN hold      INTEGER;
