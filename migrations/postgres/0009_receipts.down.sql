DROP TABLE receipts;
ALTER TABLE delivery_state
    DROP COLUMN shown_at,
    DROP COLUMN hidden_from;
