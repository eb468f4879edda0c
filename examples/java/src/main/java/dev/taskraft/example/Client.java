package dev.taskraft.example;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import dev.taskraft.v1.CloseSessionRequest;
import dev.taskraft.v1.ItemError;
import dev.taskraft.v1.PutTasksRequest;
import dev.taskraft.v1.PutTasksResponse;
import dev.taskraft.v1.SessionServiceGrpc;
import dev.taskraft.v1.SettleTasksRequest;
import dev.taskraft.v1.SettleTasksResponse;
import dev.taskraft.v1.Settlement;
import dev.taskraft.v1.SubscribeRequest;
import dev.taskraft.v1.SubscribeResponse;
import dev.taskraft.v1.TakeSource;
import dev.taskraft.v1.TakeTasksRequest;
import dev.taskraft.v1.TakeTasksResponse;
import dev.taskraft.v1.Task;
import dev.taskraft.v1.TaskServiceGrpc;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/** Calls one node at a time, and goes to the next node when a connection is lost. */
public final class Client implements AutoCloseable {
  private static final long ATTEMPT_MS = 5_000;
  private static final long CALL_MS = 20_000;
  private static final long RETRY_DELAY_MS = 50;

  /** Time in ms for which leases outlive a lost stream. */
  private static final long SESSION_TTR_MS = 10_000;

  private final List<ManagedChannel> channels = new ArrayList<>();
  private final Metadata headers = new Metadata();
  private int place;

  /**
   * Connects to the nodes of TASKRAFT_TARGET. TASKRAFT_CA_FILE turns TLS on; TASKRAFT_TOKEN is the token of the
   * principal.
   */
  public Client() throws IOException {
    String authority = System.getenv("TASKRAFT_CA_FILE");
    ChannelCredentials credentials =
        authority == null
            ? InsecureChannelCredentials.create()
            : TlsChannelCredentials.newBuilder().trustManager(new File(authority)).build();
    for (String address : System.getenv().getOrDefault("TASKRAFT_TARGET", "127.0.0.1:7733").split(",")) {
      channels.add(
          Grpc.newChannelBuilder(address, credentials)
              .maxInboundMessageSize(32 << 20)
              // A silent stream lives as long as its connection; pings find a lost connection.
              .keepAliveTime(20, TimeUnit.SECONDS)
              .keepAliveTimeout(5, TimeUnit.SECONDS)
              .build());
    }
    String token = System.getenv("TASKRAFT_TOKEN");
    if (token != null) {
      headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
    }
  }

  @Override
  public void close() {
    channels.forEach(ManagedChannel::shutdownNow);
  }

  /** An error of the server: the gRPC code, and the reason and its variables for programs. */
  public static final class Refusal extends RuntimeException {
    public final String code;
    public final String reason;
    public final Map<String, String> metadata;

    private Refusal(StatusRuntimeException error, ErrorInfo info) {
      super(error.getStatus().getDescription(), error);
      this.code = error.getStatus().getCode().name();
      this.reason = info.getReason();
      this.metadata = info.getMetadataMap();
    }

    /** Reads the ErrorInfo of a failed call. A lost connection has no ErrorInfo, so its reason is empty. */
    static Refusal of(StatusRuntimeException error) {
      com.google.rpc.Status status = StatusProto.fromThrowable(error);
      try {
        for (Any detail : status == null ? List.<Any>of() : status.getDetailsList()) {
          if (detail.is(ErrorInfo.class)) {
            return new Refusal(error, detail.unpack(ErrorInfo.class));
          }
        }
      } catch (InvalidProtocolBufferException malformed) {
        error.addSuppressed(malformed);
      }
      return new Refusal(error, ErrorInfo.getDefaultInstance());
    }
  }

  private synchronized ManagedChannel node() {
    return channels.get(place % channels.size());
  }

  /** Makes the next call use another node, unless another call has left this node already. */
  private synchronized void leave(ManagedChannel node) {
    if (node == node()) {
      place++;
    }
  }

  private Channel authenticated(ManagedChannel node) {
    return ClientInterceptors.intercept(node, MetadataUtils.newAttachHeadersInterceptor(headers));
  }

  /** Returns an idempotency key. A retry sends the same key, so the request has one effect. */
  private static String newRequestId() {
    return UUID.randomUUID().toString();
  }

  /**
   * Executes one request. UNAVAILABLE and a time-out do not tell whether the request was executed, so they are
   * retried with the same request_id, on another node.
   */
  private <A> A call(long waitMs, Function<Channel, A> method) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CALL_MS + waitMs);
    while (true) {
      ManagedChannel node = node();
      try {
        return method.apply(authenticated(node));
      } catch (StatusRuntimeException error) {
        Refusal refusal = Refusal.of(error);
        if (!isLost(error.getStatus().getCode(), refusal) || System.nanoTime() > end) {
          throw refusal;
        }
        leave(node);
        Thread.sleep(RETRY_DELAY_MS);
      }
    }
  }

  /**
   * Returns whether a failure does not tell if the request was executed. grpc-java reports a connection that closes
   * while a call starts as UNKNOWN; each refusal of the server has a reason.
   */
  private static boolean isLost(Status.Code code, Refusal refusal) {
    return code == Status.Code.UNAVAILABLE
        || code == Status.Code.DEADLINE_EXCEEDED
        || code == Status.Code.UNKNOWN && refusal.reason.isEmpty();
  }

  private static TaskServiceGrpc.TaskServiceBlockingStub tasks(Channel channel, long waitMs) {
    return TaskServiceGrpc.newBlockingStub(channel).withDeadlineAfter(ATTEMPT_MS + waitMs, TimeUnit.MILLISECONDS);
  }

  /** Puts tasks. A request without a request_id gets a random one. */
  public PutTasksResponse put(PutTasksRequest request) throws InterruptedException {
    PutTasksRequest keyed =
        request.getRequestId().isEmpty() ? request.toBuilder().setRequestId(newRequestId()).build() : request;
    return call(0, channel -> tasks(channel, 0).putTasks(keyed));
  }

  /** Takes tasks, and waits for the first one as long as the request says. */
  public TakeTasksResponse take(TakeTasksRequest request) throws InterruptedException {
    TakeTasksRequest keyed = request.toBuilder().setRequestId(newRequestId()).build();
    return call(request.getWaitMs(), channel -> tasks(channel, request.getWaitMs()).takeTasks(keyed));
  }

  /**
   * Settles leases; the answer lists the refused leases. LEASE_STALE means that another consumer may have the task
   * now, so its result must not be used.
   */
  public SettleTasksResponse settle(Settlement settlement) throws InterruptedException {
    SettleTasksRequest request =
        SettleTasksRequest.newBuilder().setRequestId(newRequestId()).addSettlements(settlement).build();
    return call(0, channel -> tasks(channel, 0).settleTasks(request));
  }

  /** Opens a subscription; the server sends at most {@code credit} tasks that are not acknowledged. */
  public Subscription subscribe(String tube, int credit) {
    Subscription subscription = new Subscription(tube, credit);
    subscription.open();
    return subscription;
  }

  /** Takes tasks from a stream. A lost stream is opened again with its session, so that the leases stay valid. */
  public final class Subscription {
    private record Unanswered(SubscribeRequest message, CompletableFuture<List<ItemError>> answer) {}

    private final String tube;
    /** Comes after the last task of a stream whose tube was dropped. */
    private static final Task END = Task.newBuilder().setId(-1).build();
    private final LinkedBlockingQueue<Task> tasks = new LinkedBlockingQueue<>();
    private final Map<String, Unanswered> unanswered = new LinkedHashMap<>();
    private int credit;
    private String session = "";
    private boolean isClosed;
    /** Why the stream has ended for good; set before END comes. */
    private volatile Refusal refusal;
    private ClientCallStreamObserver<SubscribeRequest> stream;

    private Subscription(String tube, int credit) {
      this.tube = tube;
      this.credit = credit;
    }

    private synchronized void open() {
      if (isClosed) {
        return;
      }
      ManagedChannel node = node();
      TaskServiceGrpc.newStub(authenticated(node)).subscribe(new Reader(node));
      SubscribeRequest.Open.Builder open =
          SubscribeRequest.Open.newBuilder()
              .addSources(TakeSource.newBuilder().setTube(tube))
              .setSessionId(session)
              .setSessionTtrMs(SESSION_TTR_MS);
      stream.onNext(SubscribeRequest.newBuilder().setOpen(open).build());
      if (credit > 0) {
        stream.onNext(creditMessage(credit));
      }
      // With the idempotency key, a settlement that is sent again has one effect.
      unanswered.values().forEach(each -> stream.onNext(each.message));
    }

    private SubscribeRequest creditMessage(int tasks) {
      return SubscribeRequest.newBuilder().setCredit(SubscribeRequest.Credit.newBuilder().setTasks(tasks)).build();
    }

    private final class Reader implements ClientResponseObserver<SubscribeRequest, SubscribeResponse> {
      private final ManagedChannel node;

      private Reader(ManagedChannel node) {
        this.node = node;
      }

      @Override
      public void beforeStart(ClientCallStreamObserver<SubscribeRequest> requests) {
        stream = requests;
      }

      @Override
      public void onNext(SubscribeResponse answer) {
        synchronized (Subscription.this) {
          if (answer.hasOpened()) {
            session = answer.getOpened().getSessionId();
          }
          credit -= answer.getTasksCount();
          for (SubscribeResponse.Settled settled : answer.getSettledList()) {
            Unanswered found = unanswered.remove(settled.getRequestId());
            if (found != null) {
              found.answer.complete(settled.getErrorsList());
            }
          }
        }
        tasks.addAll(answer.getTasksList());
      }

      @Override
      public void onError(Throwable error) {
        if (error instanceof StatusRuntimeException failed) {
          Refusal found = Refusal.of(failed);
          if (found.reason.equals("TUBE_NOT_FOUND")) {
            // All tubes of the stream were dropped: a new stream would be refused too.
            refusal = found;
            tasks.add(END);
            return;
          }
        }
        // The server said go_away, or the connection is lost: go on with another node.
        leave(node);
        CompletableFuture.delayedExecutor(RETRY_DELAY_MS, TimeUnit.MILLISECONDS).execute(Subscription.this::open);
      }

      @Override
      public void onCompleted() {
        onError(null);
      }
    }

    /** Returns the next task, or null after the time; throws a Refusal if the tube was dropped. */
    public Task next(long waitMs) throws InterruptedException {
      Task task = tasks.poll(waitMs, TimeUnit.MILLISECONDS);
      if (task == END) {
        tasks.add(END);
        throw refusal;
      }
      return task;
    }

    /** Acknowledges tasks on the stream, allows as many further tasks, and returns the refused leases. */
    public List<ItemError> acknowledge(List<Long> tokens)
        throws InterruptedException, ExecutionException, TimeoutException {
      String key = newRequestId();
      SubscribeRequest message =
          SubscribeRequest.newBuilder()
              .setRequestId(key)
              .setIdempotencyKey(key)
              .addSettlements(
                  Settlement.newBuilder().addAllTokens(tokens).setAck(Settlement.Ack.getDefaultInstance()))
              .build();
      CompletableFuture<List<ItemError>> answer = new CompletableFuture<>();
      synchronized (this) {
        unanswered.put(key, new Unanswered(message, answer));
        credit += tokens.size();
        try {
          stream.onNext(message);
          stream.onNext(creditMessage(tokens.size()));
        } catch (IllegalStateException ended) {
          // The next stream sends the settlement and the credit again.
        }
      }
      return answer.get(CALL_MS, TimeUnit.MILLISECONDS);
    }

    /** Ends the stream and its session; tasks that are still leased go to other consumers at once. */
    public void close() throws InterruptedException {
      synchronized (this) {
        isClosed = true;
        stream.cancel("closed", null);
      }
      if (!session.isEmpty()) {
        CloseSessionRequest request =
            CloseSessionRequest.newBuilder()
                .setRequestId(newRequestId())
                .setSessionId(session)
                .setUncounted(true)
                .build();
        call(
            0,
            channel ->
                SessionServiceGrpc.newBlockingStub(channel)
                    .withDeadlineAfter(ATTEMPT_MS, TimeUnit.MILLISECONDS)
                    .closeSession(request));
      }
    }
  }
}
