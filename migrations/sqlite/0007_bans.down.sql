DROP TABLE bans;
DROP TABLE blocks;
