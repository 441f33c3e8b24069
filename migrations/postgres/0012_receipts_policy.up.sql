-- Who sees what the members of a chat read (tidemark.ReceiptsPolicy). It comes before the settings
-- in the table receipts. The column is NULL for most chats, so adding it writes no row.
ALTER TABLE chats ADD COLUMN read_receipts text;  -- 'required' or 'off'; NULL: members decide
