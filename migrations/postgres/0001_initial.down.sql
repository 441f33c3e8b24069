DROP TABLE schema_compatible, lives, pending_deliveries, mentions, uncounted, delivery_state,
    messages, senders, members, chat_metadata, chats;
