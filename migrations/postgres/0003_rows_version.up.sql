-- Which pending rows still stand (storage.Appended.RowsVersion): rows_version grows whenever rows
-- of the chat are removed. A trigger counts, so that rows which older programs or administrators
-- remove count, too. It runs once for each statement. Rows of one chat count once.
ALTER TABLE chats ADD COLUMN rows_version bigint NOT NULL DEFAULT 1;

CREATE FUNCTION count_removed_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE chats SET rows_version = rows_version + 1
        WHERE id = ANY (ARRAY(SELECT chat_id FROM removed));
    RETURN NULL;
END $$;

CREATE TRIGGER count_removed_rows AFTER DELETE ON pending_deliveries
    REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION count_removed_rows();
