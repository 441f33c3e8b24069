-- Who sees what the members of a chat read (tidemark.ReceiptsPolicy): 'required' or 'off'. It comes
-- before the settings in the table receipts. NULL: members decide.
ALTER TABLE chats ADD COLUMN read_receipts TEXT;
