"""Settings of Spark for elastic jobs, as pairs for `SparkConf.setAll`: how often a task may fail, and whether executors
and nodes where tasks have failed get tasks again."""

from __future__ import annotations

SPARK_CONF_MAX_INT = str(2**31 - 1)
SPARK_CONF_MAX_INT_MINUS_ONE = str(2**31 - 2)

# An elastic job counts its failures itself (reset_limit), so Spark need not.
SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = ("spark.task.maxFailures", SPARK_CONF_MAX_INT)

SPARK_CONF_BLACKLIST_DISABLED = ("spark.blacklist.enabled", "false")
SPARK_CONF_BLACKLIST_ENABLED = ("spark.blacklist.enabled", "true")

# Of one stage. They need SPARK_CONF_BLACKLIST_ENABLED, like all that follow.
SPARK_CONF_REUSE_FAILED_EXECUTOR = ("spark.blacklist.stage.maxFailedTasksPerExecutor", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR = ("spark.blacklist.stage.maxFailedTasksPerExecutor", "1")
SPARK_CONF_REUSE_FAILING_NODE = ("spark.blacklist.stage.maxFailedExecutorsPerNode", SPARK_CONF_MAX_INT_MINUS_ONE)
SPARK_CONF_DONT_REUSE_FAILING_NODE = ("spark.blacklist.stage.maxFailedExecutorsPerNode", "1")

# Of one task.
SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK = (
    "spark.blacklist.task.maxTaskAttemptsPerExecutor",
    SPARK_CONF_MAX_INT,
)
SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK = ("spark.blacklist.task.maxTaskAttemptsPerExecutor", "2")
SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK = ("spark.blacklist.task.maxTaskAttemptsPerExecutor", "1")
SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK = (
    "spark.blacklist.task.maxTaskAttemptsPerNode",
    SPARK_CONF_MAX_INT_MINUS_ONE,
)
SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK = ("spark.blacklist.task.maxTaskAttemptsPerNode", "2")
SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK = ("spark.blacklist.task.maxTaskAttemptsPerNode", "1")

# Of the application.
SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP = (
    "spark.blacklist.application.maxFailedTasksPerExecutor",
    SPARK_CONF_MAX_INT,
)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP = ("spark.blacklist.application.maxFailedTasksPerExecutor", "1")
SPARK_CONF_REUSE_FAILING_NODE_IN_APP = ("spark.blacklist.application.maxFailedExecutorsPerNode", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP = ("spark.blacklist.application.maxFailedExecutorsPerNode", "1")

# Spark's own defaults.
SPARK_CONF_DEFAULT_VALUES = {
    "spark.task.maxFailures": "4",
    "spark.blacklist.enabled": "false",
    "spark.blacklist.stage.maxFailedTasksPerExecutor": "2",
    "spark.blacklist.stage.maxFailedExecutorsPerNode": "2",
    "spark.blacklist.task.maxTaskAttemptsPerExecutor": "1",
    "spark.blacklist.task.maxTaskAttemptsPerNode": "2",
    "spark.blacklist.application.maxFailedTasksPerExecutor": "2",
    "spark.blacklist.application.maxFailedExecutorsPerNode": "2",
}
