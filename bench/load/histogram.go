package main

import (
	"math/bits"
	"time"
)

// subBuckets is the number of buckets per power of two; a percentile has an error of at most one part in 64.
// The layout is that of HdrHistogram (Gil Tene), without its auto-ranging.
const (
	subBucketBits = 6
	subBuckets    = 1 << subBucketBits
	bucketsTotal  = (64 - subBucketBits + 1) * subBuckets
)

// histogram counts durations of any length in constant space. It is not safe for concurrent use: each worker
// has its own histogram, and they are merged at the end.
type histogram struct {
	counts [bucketsTotal]uint64
	total  uint64
	sum    time.Duration
	max    time.Duration
}

func bucketOf(value uint64) int {
	if value < subBuckets {
		return int(value)
	}
	exponent := bits.Len64(value) - 1 - subBucketBits
	return exponent*subBuckets + int(value>>exponent)
}

// upperBound returns the largest value of a bucket.
func upperBound(bucket int) uint64 {
	if bucket < 2*subBuckets {
		return uint64(bucket)
	}
	exponent := bucket/subBuckets - 1
	return (uint64(bucket-exponent*subBuckets)+1)<<exponent - 1
}

// add counts one duration; a negative duration counts as zero.
func (h *histogram) add(duration time.Duration) {
	duration = max(duration, 0)
	h.counts[bucketOf(uint64(duration))]++
	h.total++
	h.sum += duration
	h.max = max(h.max, duration)
}

func (h *histogram) merge(other *histogram) {
	for bucket, count := range other.counts {
		h.counts[bucket] += count
	}
	h.total += other.total
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

// percentile returns the smallest bound that at least the given share of all durations does not exceed.
func (h *histogram) percentile(percent float64) time.Duration {
	rank := uint64(percent / 100 * float64(h.total))
	seen := uint64(0)
	for bucket, count := range h.counts {
		seen += count
		if count > 0 && seen >= rank {
			return min(time.Duration(upperBound(bucket)), h.max)
		}
	}
	return h.max
}

// latency is the summary of one histogram in the report, in microseconds.
type latency struct {
	Count  uint64 `json:"count"`
	MeanUs int64  `json:"mean_us"`
	P50Us  int64  `json:"p50_us"`
	P90Us  int64  `json:"p90_us"`
	P99Us  int64  `json:"p99_us"`
	P999Us int64  `json:"p999_us"`
	MaxUs  int64  `json:"max_us"`
}

func (h *histogram) summary() latency {
	if h.total == 0 {
		return latency{}
	}
	return latency{
		Count:  h.total,
		MeanUs: (h.sum / time.Duration(h.total)).Microseconds(),
		P50Us:  h.percentile(50).Microseconds(),
		P90Us:  h.percentile(90).Microseconds(),
		P99Us:  h.percentile(99).Microseconds(),
		P999Us: h.percentile(99.9).Microseconds(),
		MaxUs:  h.max.Microseconds(),
	}
}
