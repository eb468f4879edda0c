package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// leaderKey is the metadata key of the leader's address, which every response has.
const leaderKey = "x-taskraft-leader"

// cluster holds the addresses of the nodes, the known leader, and the connections.
type cluster struct {
	mu          sync.Mutex
	addresses   []string
	current     string
	changes     int
	isFollowing bool
	connections int
	timeout     time.Duration
	links       map[string][]*link
}

func newCluster(addresses []string, connections int, timeout time.Duration, isFollowing bool) *cluster {
	return &cluster{
		addresses:   addresses,
		current:     addresses[0],
		isFollowing: isFollowing,
		connections: connections,
		timeout:     timeout,
		links:       map[string][]*link{},
	}
}

// link returns the connection of a slot to the known leader, and its address. Slots are distributed over the
// connections, so several slots may share one.
func (c *cluster) link(slot int) (*link, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	address := c.current
	if !c.isFollowing {
		address = c.addresses[slot%len(c.addresses)]
	}
	links, isKnown := c.links[address]
	if !isKnown {
		links = make([]*link, c.connections)
		c.links[address] = links
	}
	place := slot % c.connections
	if links[place] == nil {
		link, err := newLink(address, c.timeout)
		if err != nil {
			return nil, address, err
		}
		links[place] = link
	}
	return links[place], address, nil
}

// heard stores the leader that a response named.
func (c *cluster) heard(header metadata.MD) {
	if named := header.Get(leaderKey); len(named) > 0 {
		c.lead(named[0])
	}
}

// lead sets the address that all slots use.
func (c *cluster) lead(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if address == "" || address == c.current || !c.isFollowing {
		return
	}
	c.current = address
	c.changes++
}

// failed switches to the next address, unless another slot has already done so.
func (c *cluster) failed(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if address != c.current || !c.isFollowing {
		return
	}
	place := slices.Index(c.addresses, address) // -1: the address is from a response
	c.current = c.addresses[(place+1)%len(c.addresses)]
	c.changes++
}

// findLeader asks the nodes until one names the leader.
func (c *cluster) findLeader(ctx context.Context) error {
	var last error
	for ctx.Err() == nil {
		for range c.addresses {
			link, address, err := c.link(0)
			if err != nil {
				return err
			}
			asked, cancel := context.WithTimeout(ctx, time.Second)
			state, err := taskraft.NewClusterServiceClient(link).
				GetClusterState(asked, &taskraft.GetClusterStateRequest{})
			cancel()
			if err == nil && state.LeaderAddress != "" {
				c.lead(state.LeaderAddress)
				return nil
			}
			if err != nil {
				last = err
			}
			c.failed(address)
		}
		rest(ctx, 50*time.Millisecond)
	}
	return fmt.Errorf("no node of %v names a leader: %w", c.addresses, last)
}

func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, links := range c.links {
		for _, link := range links {
			if link != nil {
				_ = link.Close() // the process exits next
			}
		}
	}
}
