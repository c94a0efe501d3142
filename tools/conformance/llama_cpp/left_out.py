"""The tests of llama.cpp's server that are left out, each with its reason."""

from tools.conformance.left_out_table import LeftOutTable
from tools.conformance.outcome import LeftOut, Rule

_COMPLETION = LeftOut(rule=Rule.ROUTE, what="/completion")
_TEMPLATE = LeftOut(rule=Rule.ROUTE, what="/apply-template")
_VERBOSE = LeftOut(rule=Rule.FLAG, what="--verbose and the field __verbose")
_CORS = LeftOut(rule=Rule.FLAG, what="its own defaults of --cors-origins")
_ROUTER = LeftOut(rule=Rule.FLAG, what="its router of several models")
_TEI = LeftOut(rule=Rule.ROUTE, what="/rerank as Text Embeddings Inference has it, with texts")
_DOWNLOAD = LeftOut(rule=Rule.MODEL, what="a model of several GB")
_GRAMMAR = LeftOut(rule=Rule.FLAG, what="the field grammar, in GBNF")
_CONTEXT = LeftOut(rule=Rule.FLAG, what="its own error fields and the context of a slot")
_PICTURES = LeftOut(rule=Rule.MODEL, what="pictures")
_WORDS = LeftOut(rule=Rule.WORDS, what="words of its test model")
_COUNTS = LeftOut(rule=Rule.WORDS, what="token counts of its test model")

_BASIC: dict[str, LeftOut | None] = {
    "test_server_props": LeftOut(rule=Rule.ROUTE, what="/props"),
    "test_server_slots": LeftOut(rule=Rule.ROUTE, what="/slots"),
    "test_load_split_model": LeftOut(rule=Rule.MODEL, what="a GGUF file in parts"),
    "test_no_ui": LeftOut(rule=Rule.FLAG, what="--no-ui"),
    "test_server_model_aliases_and_tags": LeftOut(rule=Rule.FLAG, what="--tags"),
}
_CHAT: dict[str, LeftOut | None] = {
    "test_chat_completion": _WORDS,
    "test_chat_completion_cached_tokens": _COUNTS,
    "test_chat_completion_stream": _WORDS,
    "test_chat_completion_with_openai_library": _WORDS,
    "test_chat_template": _VERBOSE,
    "test_chat_template_assistant_prefill": _VERBOSE,
    "test_chat_template_continue_final_message_vllm_compat": _VERBOSE,
    "test_chat_template_continue_final_message_mutual_exclusion": LeftOut(
        rule=Rule.FLAG, what="the field continue_final_message, and --chat-template by name"
    ),
    "test_apply_chat_template": _TEMPLATE,
    "test_completion_with_response_format[response_format1-10-[ -3000 ]]": LeftOut(
        rule=Rule.WORDS, what="an array, which its schema does not ask for"
    ),
    "test_completion_with_json_schema": LeftOut(rule=Rule.FLAG, what="the field json_schema"),
    "test_completion_with_grammar": _GRAMMAR,
    "test_completion_with_invalid_grammar": _GRAMMAR,
    "test_chat_completion_with_timings_per_token": LeftOut(
        rule=Rule.FLAG, what="the field timings_per_token"
    ),
    "test_context_size_exceeded": _CONTEXT,
    "test_context_size_exceeded_stream": _CONTEXT,
    "test_return_progress": LeftOut(rule=Rule.FLAG, what="the field return_progress"),
    "test_chat_completions_multiple_choices": LeftOut(rule=Rule.FLAG, what="the field id_slot"),
    "test_chat_completions_token_count": LeftOut(
        rule=Rule.ROUTE, what="/chat/completions/input_tokens"
    ),
    "test_verbose_debug": _VERBOSE,
}
_ANTHROPIC: dict[str, LeftOut | None] = {
    "test_anthropic_tool_result_with_image": _PICTURES,
    "test_anthropic_vision_base64_with_multimodal_model": _PICTURES,
    "test_anthropic_vision_format_accepted": _PICTURES,
    "test_anthropic_thinking_history_in_template": _TEMPLATE,
    "test_anthropic_thinking_with_reasoning_model": _DOWNLOAD,
}
_RESPONSES: dict[str, LeftOut | None] = {
    "test_responses_with_openai_library": _WORDS,
    "test_responses_stream_with_openai_library": _WORDS,
    "test_responses_stream_with_llama_telemetry": LeftOut(
        rule=Rule.FLAG, what="the fields timings_per_token and return_progress"
    ),
}
_COMPLETIONS: dict[str, LeftOut | None] = {
    "test_completion": _COMPLETION,
    "test_completion_stream": _COMPLETION,
    "test_completion_stream_vs_non_stream": _COMPLETION,
    "test_completion_with_openai_library": _WORDS,
    "test_completion_stream_with_openai_library": _WORDS,
    "test_completion_stream_with_openai_library_stops": _DOWNLOAD,
    "test_consistent_result_same_seed": _COMPLETION,
    "test_different_result_different_seed": _COMPLETION,
    "test_consistent_result_different_batch_size": _COMPLETION,
    "test_cache_vs_nocache_prompt": _COMPLETION,
    "test_nocache_long_input_prompt": _COMPLETION,
    "test_json_prompt_no_mtmd": _COMPLETION,
    "test_json_prompt_mtm_error_when_not_supported": _COMPLETION,
    "test_completion_with_tokens_input": _COMPLETION,
    "test_completion_parallel_slots": _COMPLETION,
    "test_completion_unified": _COMPLETION,
    "test_completion_response_fields": _COMPLETION,
    "test_n_probs": _COMPLETION,
    "test_n_probs_stream": _COMPLETION,
    "test_n_probs_post_sampling": _COMPLETION,
    "test_n_probs_post_backend_sampling": _COMPLETION,
    "test_logit_bias": _COMPLETION,
    "test_cancel_request": _COMPLETION,
    "test_completion_prompt_cache": _COMPLETION,
}
_EMBEDDING: dict[str, LeftOut | None] = {
    "test_embedding_pooling_none": LeftOut(rule=Rule.FLAG, what="--pooling none"),
    "test_embedding_pooling_none_oai": LeftOut(rule=Rule.FLAG, what="--pooling none"),
    "test_embedding_usage_single": _COUNTS,
    "test_embedding_usage_multiple": _COUNTS,
}
_RERANK: dict[str, LeftOut | None] = {
    "test_rerank": LeftOut(rule=Rule.WORDS, what="which document its test model ranks first"),
    "test_rerank_tei_format": _TEI,
    "test_rerank_usage": _COUNTS,
    "test_rerank_tei_top_n": _TEI,
}
_SECURITY: dict[str, LeftOut | None] = {
    "test_access_static_assets_without_api_key": LeftOut(
        rule=Rule.ROUTE, what="files of its own page"
    ),
    "test_correct_api_key": _COMPLETION,
    "test_correct_api_key_anthropic_header": _COMPLETION,
    "test_openai_library_correct_api_key": LeftOut(
        rule=Rule.ROUTE, what="/chat/completions without /v1"
    ),
    "test_cors_options": _CORS,
    "test_cors_origins_localhost_reflects": _CORS,
    "test_cors_origins_localhost_rejects": _CORS,
    "test_cors_origins_defaults_to_localhost_with_tools_enabled": _CORS,
    "test_cors_proxy_only_forwards_explicit_proxy_headers": LeftOut(
        rule=Rule.ROUTE, what="/cors-proxy"
    ),
    "test_local_media_file": _PICTURES,
}
_TOKENIZE: dict[str, LeftOut | None] = {
    "test_tokenize_with_bos": LeftOut(rule=Rule.WORDS, what="the id of its test model's BOS token"),
}
_TOOL_CALL: dict[str, LeftOut | None] = {
    "test_completion_with_required_tool_real_model": _DOWNLOAD,
    "test_completion_without_tool_call_slow": LeftOut(
        rule=Rule.SUITE, what="marked slow; its fast cases count"
    ),
    "test_weather": _DOWNLOAD,
    "test_calc_result": _DOWNLOAD,
    "test_thoughts": _DOWNLOAD,
    "test_hello_world": _DOWNLOAD,
}
_FILES: dict[str, LeftOut | None] = {
    "test_compat_gcp.py": LeftOut(rule=Rule.ROUTE, what="the routes of Google's AI platform"),
    "test_ctx_shift.py": LeftOut(rule=Rule.ROUTE, what="/completion and n_predict"),
    "test_ignore_eos.py": _COMPLETION,
    "test_infill.py": LeftOut(rule=Rule.ROUTE, what="/infill"),
    "test_kv_keep_only_active.py": LeftOut(rule=Rule.FLAG, what="its cache of idle slots"),
    "test_lora.py": LeftOut(rule=Rule.FLAG, what="LoRA adapters and /lora-adapters"),
    "test_mcp_servers.py": LeftOut(rule=Rule.FLAG, what="its MCP client"),
    "test_proxy.py": LeftOut(rule=Rule.ROUTE, what="/cors-proxy"),
    "test_router.py": _ROUTER,
    "test_sleep.py": LeftOut(rule=Rule.FLAG, what="--sleep-idle-seconds"),
    "test_slot_save.py": LeftOut(rule=Rule.ROUTE, what="/slots, saved and restored"),
    "test_speculative.py": _COMPLETION,
    "test_stream.py": _ROUTER,
    "test_template.py": _TEMPLATE,
    "test_tools_builtin.py": LeftOut(rule=Rule.FLAG, what="its built-in tools"),
    "test_vision_api.py": _PICTURES,
}
_TESTS = {
    "test_basic.py": _BASIC,
    "test_chat_completion.py": _CHAT,
    "test_compat_anthropic.py": _ANTHROPIC,
    "test_compat_oai_responses.py": _RESPONSES,
    "test_completion.py": _COMPLETIONS,
    "test_embedding.py": _EMBEDDING,
    "test_rerank.py": _RERANK,
    "test_security.py": _SECURITY,
    "test_tokenize.py": _TOKENIZE,
    "test_tool_call.py": _TOOL_CALL,
}

LEFT_OUT = LeftOutTable(
    rows={
        **{f"unit/{file}": reason for file, reason in _FILES.items()},
        **{
            f"unit/{file}::{test}": reason
            for file, tests in _TESTS.items()
            for test, reason in tests.items()
        },
    }
)
