DROP TRIGGER count_removed_rows ON pending_deliveries;
DROP FUNCTION count_removed_rows;
ALTER TABLE chats DROP COLUMN rows_version;
