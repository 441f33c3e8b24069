// Package dynamodb keeps messages in DynamoDB.
package dynamodb
