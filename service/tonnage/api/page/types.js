export const ESTIMATE_FIELDS = ["model", "peak", "required", "claimed_bytes", "gpus", "kv_cache", "capacity", "headroom", "verdict", "reasons",
    "reserve_bytes", "rules_of_thumb", "assumptions", "unknowns", "invalidated_by", "digest"];
export const FIT_FIELDS = ["candidates", "selected", "confirmations", "excluded", "alternatives", "current", "considered"];
