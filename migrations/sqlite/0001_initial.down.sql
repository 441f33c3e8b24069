DROP TABLE pending_deliveries;
DROP TABLE delivery_state;
DROP TABLE messages;
DROP TABLE members;
DROP TABLE chats;
