ALTER TABLE messages
    DROP COLUMN relation,
    DROP COLUMN revision;
