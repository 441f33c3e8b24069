package limit

import (
	"net"
	"net/netip"
	"testing"
)

// An IPv4 address counts as one client. Of IPv6 a /64 does, because a subscriber gets a whole one.
func TestNetwork_of_an_address(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:1":                  "192.0.2.7/32",
		"[::ffff:192.0.2.7]:2":         "192.0.2.7/32",
		"[2001:db8:1:2::3]:4":          "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::9]:5":     "2001:db8:1:2::/64",
		"[2001:db8:1:3::3]:4":          "2001:db8:1:3::/64",
		"[fe80::1%a-network-card]:443": "fe80::/64",
	} {
		got := network(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)))
		if got.String() != want {
			t.Errorf("%s counts as %v, want %s", address, got, want)
		}
	}
}
