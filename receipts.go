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

// ReceiptsPolicy is what a chat says about who sees what its members read. It comes before the
// settings of the members.
type ReceiptsPolicy string

// The policies.
const (
	// ReceiptsOptional is the policy of most chats: each member decides (ReceiptsSetting).
	ReceiptsOptional ReceiptsPolicy = ""
	// ReceiptsRequired shows what every member reads.
	ReceiptsRequired ReceiptsPolicy = "required"
	// ReceiptsNever hides what every member reads. So nobody sees what others read.
	ReceiptsNever ReceiptsPolicy = "off"
)

// Valid reports whether p is one of the policies.
func (p ReceiptsPolicy) Valid() bool {
	return p == ReceiptsOptional || p == ReceiptsRequired || p == ReceiptsNever
}

// Hides reports whether a chat with the policy hides what a member reads. hides says it of the
// member's own settings.
func (p ReceiptsPolicy) Hides(hides bool) bool {
	switch p {
	//rule:shown_within_real.a-chat-shows-all
	case ReceiptsRequired:
		return false
	//rule:shown_within_real.a-chat-hides-all
	case ReceiptsNever:
		return true
	}
	return hides
}

// CheckReceiptsPolicy returns nil if p is one of the policies, else an Invalid error.
func CheckReceiptsPolicy(p ReceiptsPolicy) error {
	if !p.Valid() {
		return BadParam(Invalid, "read_receipts", "must be required, off or optional")
	}
	return nil
}

// Or returns the setting that holds: that of a chat, or else the one for all chats.
func (r ReceiptsSetting) Or(inAll ReceiptsSetting) ReceiptsSetting {
	if r == ReceiptsDefault {
		return inAll
	}
	return r
}
