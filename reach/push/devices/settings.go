package devices

import (
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // Quiet hours name zones, and a server may have no files of them.
	"unicode"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
)

// Bounds of settings.
const (
	// MaxDisplayName is the maximum number of bytes of a display name.
	MaxDisplayName = 200
	// MaxMutes is how many chats a user mutes at most.
	MaxMutes = 500
)

// Settings are what a user wants to be told, on all their devices. The zero value is the default.
type Settings struct {
	// DisplayName is the name of the user on the banners of others, or "" for the user id.
	DisplayName string `json:"display_name,omitempty"`
	// Preview is how much a banner shows, or "" for all.
	Preview push.Preview `json:"preview,omitempty"`
	// Quiet are the hours without banners, or nil.
	Quiet *Quiet `json:"quiet_hours,omitempty"`
	// Mutes are chats without banners. They ascend by chat.
	Mutes []Mute `json:"mutes,omitempty"`
}

// Quiet is a time of each day. It ends on the next day if the end is not after the start.
type Quiet struct {
	// Start and End are times of day, such as "22:00".
	Start string `json:"start"`
	End   string `json:"end"`
	// Zone is a name of the time zone database, such as "Europe/Berlin".
	Zone string `json:"time_zone"`
}

// Mute is a chat without banners, until a time. A zero time is for ever.
type Mute struct {
	Chat  tidemark.ChatID `json:"chat_id"`
	Until time.Time       `json:"until,omitzero"`
}

// Check returns nil if the settings can be stored, else an Invalid error that names the
// field. It sorts the mutes.
func (s *Settings) Check() error {
	if len(s.DisplayName) > MaxDisplayName {
		return tidemark.BadParam(tidemark.Invalid, "display_name",
			"has %d bytes, at most %d are allowed", len(s.DisplayName), MaxDisplayName)
	}
	switch {
	case !utf8.ValidString(s.DisplayName):
		return tidemark.BadParam(tidemark.Invalid, "display_name", "is not UTF-8")
	//rule:bounded_input.plain-display-names
	case strings.ContainsFunc(s.DisplayName, neverInName):
		return tidemark.BadParam(tidemark.Invalid, "display_name",
			"holds a line break, or a character that changes how the rest is shown")
	case s.DisplayName != "" && !strings.ContainsFunc(s.DisplayName, shown):
		return tidemark.BadParam(tidemark.Invalid, "display_name",
			"shows nothing; leave it out for the user id")
	}
	switch s.Preview {
	case "", push.PreviewFull, push.PreviewSender, push.PreviewNone, push.PreviewSealed:
	default:
		return tidemark.BadParam(tidemark.Invalid, "preview",
			"must be full, sender, none or sealed")
	}
	if s.Quiet != nil {
		if _, err := s.Quiet.holds(time.Time{}); err != nil {
			return err
		}
	}
	if len(s.Mutes) > MaxMutes {
		return tidemark.BadParam(tidemark.Invalid, "mutes", "has %d chats, at most %d are allowed",
			len(s.Mutes), MaxMutes)
	}
	for _, m := range s.Mutes {
		if err := tidemark.CheckID("mutes", m.Chat); err != nil {
			return err
		}
	}
	s.Mutes = slices.Clone(s.Mutes)
	slices.SortFunc(s.Mutes, func(a, b Mute) int {
		return slices.Compare([]byte(a.Chat), []byte(b.Chat))
	})
	for i := 1; i < len(s.Mutes); i++ {
		if s.Mutes[i].Chat == s.Mutes[i-1].Chat {
			return tidemark.BadParam(tidemark.Invalid, "mutes", "names %s twice", s.Mutes[i].Chat)
		}
	}
	return nil
}

// neverInName reports whether a character has no place in a display name. Some turn the order of
// the text around, so that the banner of one user reads like that of another. Joiners have a place:
// Persian and many emoji are written with them. So have other spaces than " ".
func neverInName(r rune) bool {
	return unicode.Is(unicode.Bidi_Control, r) ||
		!unicode.IsPrint(r) && !unicode.Is(unicode.Join_Control, r) && !unicode.Is(unicode.Zs, r)
}

// shown reports whether a character can be seen by itself.
func shown(r rune) bool { return unicode.IsPrint(r) && r != ' ' }

// Silent reports whether a message of a chat shows no banner at a time. Settings that were stored
// with a zone that is unknown here have no quiet hours.
func (s *Settings) Silent(chat tidemark.ChatID, now time.Time) bool {
	for _, m := range s.Mutes {
		if m.Chat == chat && (m.Until.IsZero() || now.Before(m.Until)) {
			return true
		}
	}
	if s.Quiet == nil {
		return false
	}
	quiet, err := s.Quiet.holds(now)
	return err == nil && quiet
}

// holds reports whether a time is within the quiet hours.
func (q *Quiet) holds(now time.Time) (bool, error) {
	start, err := clock("start", q.Start)
	if err != nil {
		return false, err
	}
	end, err := clock("end", q.End)
	if err != nil {
		return false, err
	}
	zone, err := time.LoadLocation(q.Zone)
	if err != nil || q.Zone == "" || q.Zone == "Local" {
		return false, tidemark.BadParam(tidemark.Invalid, "quiet_hours",
			"has an unknown time_zone; use a name such as Europe/Berlin")
	}
	now = now.In(zone)
	minute := now.Hour()*60 + now.Minute()
	if start < end {
		return start <= minute && minute < end, nil
	}
	return minute >= start || minute < end, nil
}

// clock returns the minute of the day of a text such as "22:00".
func clock(field, text string) (int, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, tidemark.BadParam(tidemark.Invalid, "quiet_hours",
			"has no time of day as %s; write it like 22:00", field)
	}
	return t.Hour()*60 + t.Minute(), nil
}
