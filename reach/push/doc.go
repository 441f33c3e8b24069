// Package push is the contract of providers of push notifications: APNs, FCM, Web Push and
// UnifiedPush.
//
// A Provider sends one Notification to one Target, and says what became of it. Package queue
// stands in front of each provider, so that no caller waits. The leaves beside it speak to the
// providers, and package pushtest has the suite that each of them passes.
//
// # What a device gets
//
// A Notification is shown on the device, and has data for the app's handler there: the chat, the
// range of messages, and an acknowledgement token. Providers bound the bytes of a notification.
// Fit is the one rule for what is cut.
//
// # What a provider sees
//
// A sealed notification is encrypted for the device (RFC 8291). The provider sees the text Hidden,
// the badge, a collapse name that only this server can compute, and the length in steps of 256
// bytes. Web Push encrypts every notification.
package push
