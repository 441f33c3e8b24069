ALTER TABLE chats DROP COLUMN read_receipts;
