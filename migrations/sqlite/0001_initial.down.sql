DROP TABLE lives;
DROP TABLE pending_deliveries;
DROP TABLE mentions;
DROP TABLE uncounted;
DROP TABLE delivery_state;
DROP TABLE messages;
DROP TABLE members;
DROP TABLE chats;
