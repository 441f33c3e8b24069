package push

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Bounds of the calls of Send that are under way at once.
const (
	// MaxInFlight is how many there are for one provider.
	MaxInFlight = 200
	// MaxInFlightOfLane is how many of them are in one lane that has a name.
	MaxInFlightOfLane = 50
)

// A Provider sends notifications to devices. It is safe for concurrent use. It keeps no
// notification, and repeats a request only to renew its own credentials, once.
type Provider interface {
	// Send sends a notification, and returns what became of it. It returns when ctx ends, at the
	// latest.
	Send(ctx context.Context, to Target, n Notification) Result
	// Lane names what fails together with a target: one host, or the whole provider ("").
	// A queue bounds the requests of each lane, and stops a lane that fails.
	Lane(to Target) string
}

// Target is a device of a user at a provider, as the device registered itself.
type Target struct {
	User   tidemark.UserID
	Device tidemark.DeviceID
	// Registration is the number of the registration; a later one of the device is greater.
	Registration uint64
	// Registered is when the device registered Address.
	Registered time.Time
	// App is the app's name at the provider. APNs needs it: it is the topic, the app's bundle id.
	App string
	// Environment is Production or Sandbox. Only APNs has both.
	Environment Environment
	// Address is the token of APNs or FCM, the installation id of FCM, or the URL of a push
	// service's endpoint.
	Address string
	// Key is the device's key. Web Push and sealed notifications need it.
	Key Key
}

// Environment says for which kind of builds of an app an APNs token is valid.
type Environment string

// The environments. The empty one is Production.
const (
	Production Environment = "production"
	Sandbox    Environment = "sandbox"
)

// Outcome says what became of a notification.
type Outcome string

// The outcomes.
const (
	// Sent: the provider has accepted the notification. That says nothing about the device.
	Sent Outcome = "sent"
	// Retry: the provider is unreachable or busy. Result.Wait is the least time to wait.
	Retry Outcome = "retry"
	// DropTarget: the registration is dead. See Result.Drops.
	DropTarget Outcome = "drop_target"
	// Refused: this notification will never be accepted. Result.Detail says what to do.
	Refused Outcome = "refused"
	// Withheld: the provider cannot carry a notification of this kind. The next banner has what it
	// says.
	Withheld Outcome = "withheld"
)

// Result is the outcome of a notification, and what follows from it.
type Result struct {
	Outcome Outcome
	// Wait is the least time until a notification to the same target is tried again, if the
	// outcome is Retry. 0 means that the provider said none.
	Wait time.Duration
	// OneTarget reports that the wait is for this target alone: the provider takes others.
	OneTarget bool
	// DeadSince is when the provider knew that the address was dead, if the outcome is DropTarget.
	// Zero means that the provider did not say.
	DeadSince time.Time
	// Detail is one sentence for the log. It contains neither an address nor a message's text.
	Detail string
}

// Drops reports whether the result ends the registration of a target. A target that registered
// after DeadSince is alive: the app was installed again.
func (r Result) Drops(to Target) bool {
	if r.Outcome != DropTarget {
		return false
	}
	//rule:push_drops_the_dead.not-what-registered-since
	if !r.DeadSince.IsZero() && to.Registered.After(r.DeadSince) {
		return false
	}
	return true
}
