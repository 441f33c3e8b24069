// Package kafka is an outlet that stores events in topics of Apache Kafka.
//
// A prefix names two topics: PREFIX.messages has every message, with its chat as the key, and
// PREFIX.state is compacted and has the last state of chats and members. Nobody creates them but
// the operator.
//
// Records of one chat are stored in order, whatever fails. There is one round trip at a time, which
// combines the deliveries that wait (internal/batch). Its records of one partition are one batch of
// Kafka, which is stored as a whole or not at all. So no record overtakes an earlier one that was
// refused. Within a session the producer is idempotent: a batch whose answer was lost is sent again
// and stored once. If Kafka gives no answer in time, the session ends. What was under way may then
// come twice, and still not out of order.
package kafka
