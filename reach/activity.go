package reach

// activity says whether a chat is worked on, and whether it has had news since that began. Such
// news may have come too late for the work, so the chat is worked on once more.
//
//	activity   begin     news       end
//	resting    working   -          -
//	working    -         outdated   resting
//	outdated   -         outdated   resting, and once more
type activity int

const (
	resting activity = iota
	working
	outdated
)

// begin notes that the work begins. The chat must rest.
func (a *activity) begin() { *a = working }

// news notes that the chat has news. It must be worked on.
func (a *activity) news() { *a = outdated }

// end notes that the work ends, and reports whether the chat is to be worked on once more.
func (a *activity) end() (again bool) {
	again = *a == outdated
	*a = resting
	return again
}
