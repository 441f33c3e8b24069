package registry

// Addressed is the leases of one node.
type Addressed struct {
	Node   Node
	Leases []Lease
}

// ByNode sorts leases, those of each of some users, by their node, so that each node is told once. There are few nodes.
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
