DROP TABLE pending_deliveries, delivery_state, messages, members, chats;
