-- Edits and redactions are messages that change another message of their chat, their target.
-- Both columns are NULL for most messages, so adding them writes no row.
ALTER TABLE messages
    ADD COLUMN relation bigint,  -- of an edit or a redaction: the sequence of the target
    ADD COLUMN revision text;    -- of a changed message: what changed it (tidemark.Revision.Text)
