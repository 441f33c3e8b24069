DROP TABLE receipts;
ALTER TABLE delivery_state DROP COLUMN shown_at;
ALTER TABLE delivery_state DROP COLUMN hidden_from;
