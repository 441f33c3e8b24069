DROP TABLE pins;
DROP TABLE reactions;
