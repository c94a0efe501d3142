"""The tests of vLLM's HTTP API that are left out, each with its reason."""

from tools.conformance.left_out_table import LeftOutTable
from tools.conformance.outcome import LeftOut, Rule

_OPENAI = "tests/entrypoints/openai"
_MODULES = LeftOut(rule=Rule.MODULES, what="vllm")
_HARMONY = LeftOut(rule=Rule.MODEL, what="gpt-oss and its channels")
_EMBEDS = LeftOut(rule=Rule.FLAG, what="the field prompt_embeds")
_LORA = LeftOut(rule=Rule.FLAG, what="LoRA adapters")
_PROMPT_LOGPROBS = LeftOut(rule=Rule.FLAG, what="the field prompt_logprobs")
_USAGE = LeftOut(rule=Rule.FLAG, what="the field continuous_usage_stats")
_BACKGROUND = LeftOut(rule=Rule.FLAG, what="answers in the background")
_ANSWER = LeftOut(rule=Rule.WORDS, what="that the model gives the right answer")
_CALLS = LeftOut(rule=Rule.WORDS, what="that the model chooses to call a function")
_THINKS = LeftOut(rule=Rule.WORDS, what="that the model thinks before it answers")
_JSON = LeftOut(rule=Rule.WORDS, what="that the model extracts what the prompt says")
_ENDS = LeftOut(rule=Rule.WORDS, what="that answers to one prompt differ in length")
_DIFFER = LeftOut(rule=Rule.WORDS, what="that two answers differ, and end within so many tokens")
_COUNTS = LeftOut(rule=Rule.WORDS, what="token counts of its test model")

_FILES: dict[str, LeftOut] = {
    "chat_completion/test_batched_chat_completions.py": LeftOut(
        rule=Rule.ROUTE, what="/v1/chat/completions/batch"
    ),
    "chat_completion/test_chat_completion_with_prompt_embeds.py": _EMBEDS,
    "chat_completion/test_chat_echo.py": LeftOut(
        rule=Rule.FLAG, what="echo, continue_final_message and top_logprobs of -1 in a conversation"
    ),
    "chat_completion/test_chat_error.py": _MODULES,
    "chat_completion/test_enable_force_include_usage.py": LeftOut(
        rule=Rule.FLAG, what="--enable-force-include-usage"
    ),
    "chat_completion/test_root_path.py": LeftOut(rule=Rule.FLAG, what="--root-path"),
    "chat_completion/test_serving_chat.py": _MODULES,
    "chat_completion/test_thinking_token_budget.py": LeftOut(
        rule=Rule.FLAG, what="the field thinking_token_budget"
    ),
    "chat_completion/test_thinking_token_budget_validation.py": _MODULES,
    "completion/test_completion_error.py": _MODULES,
    "completion/test_completion_with_prompt_embeds.py": _EMBEDS,
    "completion/test_lora_resolvers.py": _MODULES,
    "completion/test_shutdown.py": LeftOut(rule=Rule.FLAG, what="--shutdown-timeout"),
    "completion/test_tensorizer_entrypoint.py": LeftOut(rule=Rule.FLAG, what="tensorizer"),
    "completion/test_token_in_token_out.py": LeftOut(rule=Rule.FLAG, what="--skip-tokenizer-init"),
    "correctness/test_lmeval.py": LeftOut(rule=Rule.WORDS, what="scores of its test models"),
    "models/test_models.py": _LORA,
    "parser/test_harmony_render_parity.py": _MODULES,
    "parser/test_harmony_utils.py": _MODULES,
    "responses/test_errors.py": _MODULES,
    "responses/test_function_call_parsing.py": _MODULES,
    "responses/test_harmony.py": _HARMONY,
    "responses/test_harmony_utils.py": _MODULES,
    "responses/test_mcp_tools.py": _HARMONY,
    "responses/test_parsable_context.py": LeftOut(
        rule=Rule.FLAG, what="an experimental context of its own"
    ),
    "responses/test_parsable_context_unit.py": _MODULES,
    "responses/test_protocol.py": _MODULES,
    "responses/test_response_input_to_harmony.py": _MODULES,
    "responses/test_responses_utils.py": _MODULES,
    "responses/test_sampling_params.py": _MODULES,
    "responses/test_serving_responses.py": _MODULES,
    "responses/test_streaming_events.py": _MODULES,
    "responses/test_structured_output.py": _JSON,
    "test_chunked_prompt.py": _USAGE,
    "test_cli_args.py": _MODULES,
    "test_dp_supervisor.py": _MODULES,
    "test_multi_api_servers.py": LeftOut(rule=Rule.FLAG, what="--api-server-count"),
    "test_openai_schema.py": LeftOut(
        rule=Rule.ELSEWHERE, what="schemathesis over our own document (make serve-check)"
    ),
    "test_reasoning_enable_thinking.py": _MODULES,
    "test_render_token_offsets.py": _MODULES,
    "test_return_routed_experts.py": LeftOut(rule=Rule.FLAG, what="--enable-return-routed-experts"),
    "test_return_token_ids.py": LeftOut(rule=Rule.FLAG, what="the field return_token_ids"),
    "test_return_tokens_as_ids.py": LeftOut(
        rule=Rule.FLAG, what="the field return_tokens_as_token_ids"
    ),
    "test_run_batch.py": LeftOut(rule=Rule.FLAG, what="vllm run-batch"),
    "test_stop_token_ids.py": _MODULES,
    "test_tool_calls_serialization.py": _MODULES,
    "test_tool_choice_content_none.py": _MODULES,
    "test_uds.py": LeftOut(rule=Rule.FLAG, what="--uds"),
}
_CHAT_UNITS = (
    "n_parameter_to_sampling_params",
    "n_parameter_default",
    "accepts_model_specific_reasoning_effort",
    "rejects_unknown_reasoning_effort",
    "n_parameter_various_values",
    "n_parameter_exceeds_default_limit",
    "n_parameter_at_limit",
    "n_parameter_custom_limit",
    "n_parameter_massive_value",
)
_CHAT: dict[str, LeftOut | None] = {
    **{f"test_chat_completion_request_{unit}": _MODULES for unit in _CHAT_UNITS},
    "test_no_logprobs_chat[zephyr-lora]": _LORA,
    "test_zero_logprobs_chat[zephyr-lora]": _LORA,
    "test_some_logprobs_chat[zephyr-lora]": _LORA,
    "test_too_many_chat_logprobs[zephyr-lora]": _LORA,
    "test_chat_streaming[zephyr-lora]": _LORA,
    "test_prompt_logprobs_chat": _PROMPT_LOGPROBS,
    "test_more_than_one_prompt_logprobs_chat": _PROMPT_LOGPROBS,
    "test_single_chat_session": _COUNTS,
    "test_chat_completion_stream_options": _USAGE,
    "test_structured_outputs_choice_chat": _DIFFER,
    "test_structured_outputs_json_chat": _DIFFER,
    "test_structured_outputs_regex_chat": _DIFFER,
    "test_response_format_json_object": _ANSWER,
    "test_response_format_json_schema": _ANSWER,
    "test_complex_message_content": _ANSWER,
    "test_invocations": LeftOut(rule=Rule.ROUTE, what="/invocations"),
}
_FUNCTIONS: dict[str, LeftOut | None] = {
    **{
        f"test_function_tool_use[False-auto-{stream}-Qwen/Qwen3-0.6B]": _CALLS
        for stream in (True, False)
    },
    **{
        f"test_function_tool_use[True-{choice}-{stream}-Qwen/Qwen3-0.6B]": _THINKS
        for choice in ("auto", "required", "tool_choice2")
        for stream in (True, False)
    },
    "test_named_tool_use": _DIFFER,
}
_COMPLETION: dict[str, LeftOut | None] = {
    "test_single_completion": _COUNTS,
    "test_completion_truncation_side_controls_prompt_truncation": LeftOut(
        rule=Rule.FLAG, what="the field truncate_prompt_tokens"
    ),
    "test_prompt_logprobs_completion": _PROMPT_LOGPROBS,
    "test_parallel_no_streaming": _ENDS,
    "test_parallel_streaming": _ENDS,
    "test_completion_stream_options": _USAGE,
    "test_batch_completions": LeftOut(rule=Rule.FLAG, what="the field use_beam_search"),
}
_PROMPTS: dict[str, LeftOut | None] = {
    "test_empty_prompt": _EMBEDS,
    "test_load_prompt_embeds": _MODULES,
    "test_disable_prompt_embeds": _MODULES,
}
_RESPONSES_BASIC: dict[str, LeftOut | None] = {
    "test_simple_input": _ANSWER,
    "test_instructions": _ANSWER,
    "test_chat": _ANSWER,
}
_RESPONSES_STATE: dict[str, LeftOut | None] = {
    "test_background": _BACKGROUND,
    "test_background_error": _BACKGROUND,
    "test_cancel_completed": _BACKGROUND,
    "test_background_cancel": _BACKGROUND,
    "test_previous_response_id": _ANSWER,
    "test_two_responses_with_same_prev_id": _ANSWER,
}
_RESPONSES_CALLS: dict[str, LeftOut | None] = {
    "test_function_tool_use[auto-Qwen/Qwen3-1.7B]": _CALLS,
    "test_function_tool_use[required-Qwen/Qwen3-1.7B]": _THINKS,
    "test_function_calling_with_streaming_expected_arguments": _CALLS,
    "test_named_tool_use": LeftOut(rule=Rule.WORDS, what="that the model's numbers come to an end"),
    "test_function_calling_with_streaming_forced_tool_choice[auto-Qwen/Qwen3-1.7B]": _CALLS,
}
_RESPONSES_SIMPLE: dict[str, LeftOut | None] = {
    "test_enable_response_messages": LeftOut(
        rule=Rule.FLAG, what="the field enable_response_messages"
    ),
    "test_reasoning_item": _THINKS,
    "test_streaming_reasoning_tokens_e2e": _THINKS,
    "test_non_streaming_reasoning_tokens_e2e": _THINKS,
}
_TESTS = {
    "chat_completion/test_chat.py": _CHAT,
    "chat_completion/test_completion_with_function_calling.py": _FUNCTIONS,
    "completion/test_completion.py": _COMPLETION,
    "completion/test_prompt_validation.py": _PROMPTS,
    "responses/test_basic.py": _RESPONSES_BASIC,
    "responses/test_stateful.py": _RESPONSES_STATE,
    "responses/test_function_call.py": _RESPONSES_CALLS,
    "responses/test_simple.py": _RESPONSES_SIMPLE,
}

LEFT_OUT = LeftOutTable(
    rows={
        **{f"{_OPENAI}/{file}": reason for file, reason in _FILES.items()},
        **{
            f"{_OPENAI}/{file}::{test}": reason
            for file, tests in _TESTS.items()
            for test, reason in tests.items()
        },
    }
)
