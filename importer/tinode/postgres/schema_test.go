package postgres

// schema makes the tables that are read, with the columns that Tinode's version 117 gives them. Its
// own schema is in server/db/postgres of github.com/tinode/chat.
const schema = `
CREATE TABLE kvmeta (
	key       VARCHAR(64) NOT NULL PRIMARY KEY,
	createdat TIMESTAMP(3),
	value     TEXT
);
CREATE TABLE users (
	id        BIGINT PRIMARY KEY,
	createdat TIMESTAMP(3) NOT NULL,
	updatedat TIMESTAMP(3) NOT NULL,
	state     SMALLINT NOT NULL DEFAULT 0,
	public    JSON
);
CREATE TABLE topics (
	id        SERIAL PRIMARY KEY,
	createdat TIMESTAMP(3) NOT NULL,
	updatedat TIMESTAMP(3) NOT NULL,
	state     SMALLINT NOT NULL DEFAULT 0,
	touchedat TIMESTAMP(3),
	name      VARCHAR(25) NOT NULL UNIQUE,
	usebt     BOOLEAN DEFAULT FALSE,
	owner     BIGINT NOT NULL DEFAULT 0,
	access    JSON,
	seqid     INT NOT NULL DEFAULT 0,
	delid     INT DEFAULT 0,
	public    JSON
);
CREATE TABLE subscriptions (
	id        SERIAL PRIMARY KEY,
	createdat TIMESTAMP(3) NOT NULL,
	updatedat TIMESTAMP(3) NOT NULL,
	deletedat TIMESTAMP(3),
	userid    BIGINT NOT NULL REFERENCES users (id),
	topic     VARCHAR(25) NOT NULL,
	delid     INT DEFAULT 0,
	recvseqid INT DEFAULT 0,
	readseqid INT DEFAULT 0,
	modewant  VARCHAR(8),
	modegiven VARCHAR(8),
	private   JSON,
	UNIQUE (topic, userid)
);
CREATE TABLE messages (
	id        SERIAL PRIMARY KEY,
	createdat TIMESTAMP(3) NOT NULL,
	updatedat TIMESTAMP(3) NOT NULL,
	deletedat TIMESTAMP(3),
	delid     INT DEFAULT 0,
	seqid     INT NOT NULL,
	topic     VARCHAR(25) NOT NULL REFERENCES topics (name),
	"from"    BIGINT NOT NULL,
	head      JSON,
	content   JSON,
	UNIQUE (topic, seqid)
);
CREATE TABLE dellog (
	id         SERIAL PRIMARY KEY,
	topic      VARCHAR(25) NOT NULL REFERENCES topics (name),
	deletedfor BIGINT NOT NULL DEFAULT 0,
	delid      INT NOT NULL,
	low        INT NOT NULL,
	hi         INT NOT NULL
);`

// data is a server with a group that has a channel, a topic of two users, and topics that are not
// moved. A message was deleted for everyone, another one for one user, and one was edited.
const data = `
INSERT INTO kvmeta (key, value) VALUES ('version', '117');
INSERT INTO users (id, createdat, updatedat) SELECT n, '2024-03-01', '2024-03-01'
	FROM generate_series(1, 5) AS n;
INSERT INTO topics (createdat, updatedat, state, name, owner, seqid, public) VALUES
	('2024-03-01', '2024-03-01', 0, 'sys', 0, 0, '{"fn": "System"}'),
	('2024-03-01', '2024-03-01', 0, 'grpTeam', 1, 6, '{"fn": "Team", "photo": {"data": "AAA"}}'),
	('2024-03-01', '2024-03-01', 20, 'grpGone', 1, 1, '{"fn": "Gone"}'),
	('2024-03-02', '2024-03-02', 0, 'PAIR', 0, 2, NULL);
INSERT INTO subscriptions
	(createdat, updatedat, deletedat, userid, topic, readseqid, modewant, modegiven) VALUES
	('2024-03-01', '2024-03-01', NULL, 1, 'grpTeam', 6, 'JRWPASDO', 'JRWPASDO'),
	('2024-03-01', '2024-03-01', NULL, 2, 'grpTeam', 3, 'JRWPS', 'JRWPS'),
	('2024-03-01', '2024-03-04 12:00', '2024-03-04 12:00', 3, 'grpTeam', NULL, 'JRWPS', NULL),
	('2024-03-03', '2024-03-03', NULL, 4, 'chnTeam', 0, 'JRP', 'JRP'),
	('2024-03-02', '2024-03-02', NULL, 1, 'PAIR', 2, 'JRWPA', 'JRWPA'),
	('2024-03-02', '2024-03-02', NULL, 2, 'PAIR', 1, 'JRWPA', 'JRWPA'),
	('2024-03-01', '2024-03-01', NULL, 1, 'me1', 0, 'JPS', 'JPS');
INSERT INTO messages (createdat, updatedat, deletedat, delid, seqid, topic, "from", head, content)
VALUES
	('2024-03-02 10:00', '2024-03-02', NULL, 0, 1, 'grpTeam', 1, NULL, '"hello"'),
	('2024-03-02 11:00', '2024-03-02', NULL, 0, 2, 'grpTeam', 3, '{"mime": "text/x-drafty"}',
		'{"txt": "see this", "ent": [{"tp": "EX", "data": {"mime": "text/plain",
			"name": "a.txt", "ref": "https://files.example.com/a.txt", "size": 7}}]}'),
	('2024-03-03 10:00', '2024-03-03', '2024-03-04', 1, 3, 'grpTeam', 0, NULL, NULL),
	('2024-03-04 10:00', '2024-03-04', NULL, 0, 5, 'grpTeam', 2, NULL, '"wrnog"'),
	('2024-03-05 10:00', '2024-03-05', NULL, 0, 6, 'grpTeam', 2, '{"replace": ":5"}', '"right"'),
	('2024-03-01 10:00', '2024-03-01', NULL, 0, 1, 'grpGone', 1, NULL, '"gone"'),
	('2024-03-02 10:00', '2024-03-02', NULL, 0, 1, 'PAIR', 1, NULL, '"hi"'),
	('2024-03-02 11:00', '2024-03-02', NULL, 0, 2, 'PAIR', 2, NULL, '"hi back"');
INSERT INTO dellog (topic, deletedfor, delid, low, hi) VALUES
	('grpTeam', 0, 1, 3, 4), ('grpTeam', 2, 2, 1, 2);`
