package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// leaderKey is the metadata in which every answer names the address of the leader.
const leaderKey = "x-taskraft-leader"

// cluster knows the addresses of the nodes and which of them leads, and keeps the connections.
type cluster struct {
	mu          sync.Mutex
	addresses   []string
	current     string
	changes     int
	isFollowing bool
	connections int
	links       map[string][]*grpc.ClientConn
}

func newCluster(addresses []string, connections int, isFollowing bool) *cluster {
	return &cluster{
		addresses:   addresses,
		current:     addresses[0],
		isFollowing: isFollowing,
		connections: connections,
		links:       map[string][]*grpc.ClientConn{},
	}
}

// link returns the connection of a slot to the node that is believed to lead, and its address.
// Slots are spread over the connections, so that several of them may share one.
func (c *cluster) link(slot int) (*grpc.ClientConn, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	address := c.current
	if !c.isFollowing {
		address = c.addresses[slot%len(c.addresses)]
	}
	links, isKnown := c.links[address]
	if !isKnown {
		links = make([]*grpc.ClientConn, c.connections)
		c.links[address] = links
	}
	place := slot % c.connections
	if links[place] == nil {
		link, err := grpc.NewClient(
			"passthrough:///"+address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			// The default lets a broken link rest for a second and more; after a fail-over that
			// would be measured as the cluster's.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           reconnectBackoff,
				MinConnectTimeout: time.Second,
			}),
		)
		if err != nil {
			return nil, address, fmt.Errorf("connect to %s: %w", address, err)
		}
		links[place] = link
	}
	return links[place], address, nil
}

// heard takes note of the leader that an answer named.
func (c *cluster) heard(header metadata.MD) {
	if named := header.Get(leaderKey); len(named) > 0 {
		c.lead(named[0])
	}
}

// lead makes an address the one that all slots use from now on.
func (c *cluster) lead(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if address == "" || address == c.current || !c.isFollowing {
		return
	}
	c.current = address
	c.changes++
}

// failed moves on to the next address, unless another slot has done so already.
func (c *cluster) failed(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if address != c.current || !c.isFollowing {
		return
	}
	place := slices.Index(c.addresses, address) // -1: an address that only an answer named
	c.current = c.addresses[(place+1)%len(c.addresses)]
	c.changes++
}

// findLeader asks all nodes until one names the leader.
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
				_ = link.Close() // the process ends next
			}
		}
	}
}
