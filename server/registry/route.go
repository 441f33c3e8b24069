package registry

// Addressed has the leases of one node.
type Addressed struct {
	Node   Node
	Leases []Lease
}

// ByNode groups the leases of several users by node, so that each node gets one publication. It is
// meant for few nodes.
func ByNode(leases [][]Lease) []Addressed {
	var nodes []Addressed
	for _, of := range leases {
	next:
		for _, lease := range of {
			for i := range nodes {
				//rule:few_round_trips.one-publication-per-node
				if nodes[i].Node == lease.Holder() {
					nodes[i].Leases = append(nodes[i].Leases, lease)
					continue next
				}
			}
			nodes = append(nodes, Addressed{
				Node:   lease.Holder(),
				Leases: append(make([]Lease, 0, len(leases)), lease),
			})
		}
	}
	return nodes
}
