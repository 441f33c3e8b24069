-- What can be done with a chat, and for how long its messages are kept. The columns are NULL for
-- most chats, so they cost nothing in the row, and adding them writes no row.
ALTER TABLE chats
    ADD COLUMN state      text,     -- tidemark.ChatState: 'importing' or 'deleted'; NULL: live
    ADD COLUMN deleted_at bigint,   -- NULL unless the state is 'deleted'
    ADD COLUMN keep_days  integer,  -- NULL: as many days as for all chats
    ADD COLUMN hold       boolean;  -- true: nothing expires, and the chat cannot be deleted
