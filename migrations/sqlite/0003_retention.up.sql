-- Old messages can expire (chats.floor). How many of a member's messages that count as unread have
-- expired.
ALTER TABLE members ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
