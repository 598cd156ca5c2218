"""What agent frameworks add to the GenAI names: Google ADK, Microsoft's Agent Framework and Semantic Kernel, AutoGen,
CrewAI, Agno, Haystack, MCP. Their message-bus and graph attributes are known and say nothing about model calls.
"""

from __future__ import annotations

from ingest.dialects.facts import Dialect

DIALECT = Dialect(
    "frameworks",
    fields={
        "session_id": ("gcp.vertex.agent.session_id",),
        "workflow": ("workflow.name", "workflow_builder.name"),
        "tool_arguments": ("gcp.vertex.agent.tool_call_args", "haystack.tool.input"),
        "tool_result": ("gcp.vertex.agent.tool_response", "haystack.tool.output"),
        "raw_input": ("gcp.vertex.agent.llm_request", "haystack.component.input", "haystack.pipeline.input_data"),
        "raw_output": ("gcp.vertex.agent.llm_response", "haystack.component.output", "haystack.pipeline.output_data"),
    },
    ignored=(
        *("gcp.vertex.", "agent_framework.", "edge_group.", "executor.", "message.", "workflow.", "workflow_builder."),
        *("message", "message_context", "sender_agent_type", "sender_agent_class", "recipient_agent_type"),
        *("recipient_agent_class", "participant_names", "participant_descriptions", "team_id"),
        *("crew_key", "crew_id", "crew_inputs", "crew_agents", "crew_tasks", "task_key", "task_id", "task_name"),
        *(
            "agno.",
            "haystack.",
            "mcp.",
            "jsonrpc.",
            "rpc.jsonrpc.",
            "sk.",
            "semantic_kernel.",
            "smolagents.",
            "autogen.",
        ),
    ),
)
