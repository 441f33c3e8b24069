-- Old messages can expire (chats.floor). How many of a member's messages that count as unread have
-- expired. The constant default rewrites no row.
ALTER TABLE members ADD COLUMN expired bigint NOT NULL DEFAULT 0;
