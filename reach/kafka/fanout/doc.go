// Package fanout hands messages over by way of Apache Kafka: what `--fanout=kafka` means.
//
// A send is confirmed when its message is stored, with the row that says that the chat has news
// (storage.Outbox). The engine (package reach) delivers the message to a Fanout, which is an
// outlet. It stores the message in a topic, without its content, attachments and metadata, and with
// its chat as the key. Workers share the partitions of the topic as a consumer group. They read the
// messages from the database, hand them over to the sessions and rows of the recipients
// (server.HandOver), and commit afterwards. So the topic has no text that a redaction would have to
// remove.
//
// So a message is handed over at least once: until Kafka has it the row stands, and until it is
// handed over its offset is not committed. Handing it over again changes nothing.
//
// If Kafka refuses a message, gives no answer, or lets this process into no group, the Fanout hands
// the message over itself, in the process to which the engine delivered it.
package fanout
