#!/bin/sh
# Entry point of the image. `executor` starts an executor of Spark on Kubernetes, with the variables that Spark gives the
# pod. Anything else is a command of taskraft.
set -eu

if [ "${1:-}" != executor ]; then
    exec taskraft "$@"
fi

# The file has one option of the JVM on each line; an option may contain spaces.
options="$(mktemp)"
env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p' | sed 's/["\\]/\\&/g; s/.*/"&"/' > "$options"
jars="$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__) + "/jars/*")')"

exec java "@$options" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CLASSPATH:-}:$jars" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
