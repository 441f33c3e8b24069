package tidemark

// ReceiptsSetting says whether others see what a user has read.
type ReceiptsSetting string

// The settings. A user has one for all chats, and may have another one for a single chat.
const (
	// ReceiptsDefault is the setting of a chat that follows the setting for all chats.
	ReceiptsDefault ReceiptsSetting = "default"
	// ReceiptsOn shows others what the user reads.
	ReceiptsOn ReceiptsSetting = "on"
	// ReceiptsOff hides it. The user then does not see what others have read, either.
	ReceiptsOff ReceiptsSetting = "off"
)

// Valid reports whether r is one of the settings.
func (r ReceiptsSetting) Valid() bool {
	return r == ReceiptsDefault || r == ReceiptsOn || r == ReceiptsOff
}

// Or returns the setting that holds: that of a chat, or else the one for all chats.
func (r ReceiptsSetting) Or(inAll ReceiptsSetting) ReceiptsSetting {
	if r == ReceiptsDefault {
		return inAll
	}
	return r
}
