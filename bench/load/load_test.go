package main

import (
	"testing"
	"time"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

func TestEveryBucketBoundFallsIntoItsBucket(t *testing.T) {
	for bucket := range bucketsTotal - 1 {
		if found := bucketOf(upperBound(bucket)); found != bucket {
			t.Fatalf("upper bound %d of bucket %d falls into bucket %d", upperBound(bucket), bucket, found)
		}
		if found := bucketOf(upperBound(bucket) + 1); found != bucket+1 {
			t.Fatalf("the value after bucket %d falls into bucket %d", bucket, found)
		}
	}
}

func TestPercentilesAreExactToOnePartIn64(t *testing.T) {
	var counted histogram
	for microseconds := 1; microseconds <= 100_000; microseconds++ {
		counted.add(time.Duration(microseconds) * time.Microsecond)
	}
	for percent, exact := range map[float64]int64{50: 50_000, 90: 90_000, 99: 99_000, 99.9: 99_900} {
		found := counted.percentile(percent).Microseconds()
		if found < exact || found > exact+exact/subBuckets {
			t.Errorf("p%v is %d µs, exactly it is %d µs", percent, found, exact)
		}
	}
	if counted.max != 100*time.Millisecond || counted.total != 100_000 {
		t.Errorf("max %v, total %d", counted.max, counted.total)
	}
}

func TestMergedHistogramsCountAllDurations(t *testing.T) {
	var left, right histogram
	left.add(time.Millisecond)
	right.add(3 * time.Millisecond)
	left.merge(&right)
	if summary := left.summary(); summary.Count != 2 || summary.MeanUs != 2_000 || summary.MaxUs != 3_000 {
		t.Errorf("merged: %+v", summary)
	}
}

func TestAPayloadCarriesItsPlannedTime(t *testing.T) {
	task := newTask(100, 12_345*time.Nanosecond)
	planned, isOurs := plannedOf(&taskraft.Task{Spec: task})
	if len(task.Payload) != 100 || !isOurs || planned != 12_345 {
		t.Fatalf("%d bytes, planned %v (%v)", len(task.Payload), planned, isOurs)
	}
}

func TestTheGateHoldsProducersBackUntilTasksLeave(t *testing.T) {
	bounded := newGate(2)
	if !bounded.enter(2) {
		t.Fatal("an empty gate refused")
	}
	entered := make(chan bool)
	go func() { entered <- bounded.enter(1) }()
	select {
	case <-entered:
		t.Fatal("a full gate let one more in")
	default:
	}
	bounded.leave(1)
	if !<-entered {
		t.Fatal("a gate with room refused")
	}
	go func() { entered <- bounded.enter(5) }()
	bounded.close()
	if <-entered {
		t.Fatal("a closed gate let one in")
	}
}
