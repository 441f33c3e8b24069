-- What a user has read and hides from others. The defaults write no row.
ALTER TABLE delivery_state
    ADD COLUMN hidden_from bigint NOT NULL DEFAULT 0,  -- what is read from here on; 0: nothing
    ADD COLUMN shown_at    bigint NOT NULL DEFAULT 0;  -- read_at when hidden_from was set

-- Who hides what they read: in all chats, or in one. Without a row, a user shows it.
CREATE TABLE receipts (
    user_id text    COLLATE "C" NOT NULL,
    chat    bigint  NOT NULL,  -- 0: in all chats
    hidden  boolean NOT NULL,
    PRIMARY KEY (user_id, chat)
);
