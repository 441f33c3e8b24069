ALTER TABLE members DROP COLUMN expired;
