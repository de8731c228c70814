const en = {
    title: "Which GPU does my model need?",
    lead: "Does it fit, what to order, and how sure that is.",
    model: "Model", modelHint: "Type to search the catalogue, or any Hugging Face id", config: "Paste a config.json instead", configHint: "Literal config.json",
    mode: "What for", serving: "Serving", training: "Fine-tuning", plain: "Weights only", more: "More settings",
    engine: "Engine", version: "Version", format: "Weights format", asStored: "as stored", parallel: "Pipeline stages",
    gpu: "GPU", gpuAny: "any: see packages", gpus: "Number of GPUs", context: "Context, tokens", concurrency: "Requests at once", kvType: "KV cache type",
    utilization: "GPU memory utilization", framework: "Framework", method: "Method", rank: "LoRA rank", microBatch: "Micro-batch",
    sequence: "Sequence length, tokens", checkpointing: "Gradient checkpointing", optimizer: "Optimizer", sharding: "Sharding",
    dataParallel: "Data-parallel ranks", reserve: "Your own reserve", defaults: "default",
    counter: "Counted as", allocated: "tensors", reserved: "allocator", device: "nvidia-smi", unit: "Unit",
    saysMet: "Fits on {gpu}", saysConfirm: "May fit on {gpu}: confirm first", saysExcluded: "Does not fit on {gpu}", saysNone: "Needs {size} per GPU",
    needs: "Needs", ofUsable: "of {size} usable", usable: "usable", free: "{size} stay free", missing: "{size} are missing", noCard: "no GPU chosen",
    toOrder: "What to order", howSure: "How sure", growth: "Room to grow", perDuration: "{price} for {time}", seeAll: "all packages", judging: "judging packages…",
    cheapest: "Cheapest that can fit", ready: "Cheapest with nothing left to confirm", noPackage: "No package in the catalogue serves this as stated.",
    byFormula: "{share} % of it follows from formulas, the rest from measurements", bandIs: "95 % band: −{low} to +{high}", modelTrust: "Model: {trust}",
    trust_exact: "read from its config", trust_checked: "checked against its published parameter count", trust_generic: "read by the general rules",
    trust_count: "only the number of parameters is known", trust_recalled: "recalled, to be confirmed",
    upTo: "{count} requests at once at {context} tokens", oneMoreIs: "one more request: {size}", sharedIs: "{size} shared by all",
    others: "everything else", changes: "What one change would do", apply: "Try it", required: "Required on the fullest GPU", headroom: "Headroom",
    met: "fits", needs_confirmation: "to confirm", excluded: "does not fit", requirementMet: "met", requirementExcluded: "no",
    claimedBeyond: "KV cache the engine claims beyond that", claimNote: "The engine takes {size} at start, whatever the traffic: the hatched part is spare KV cache.",
    peak: "Peak", phases: "Over time", items: "Where it goes", component: "Part", size: "Size", band: "95 % band", basis: "How known", total: "Together",
    law: "Law", source: "Source", showLaw: "Show the formula of", inputs: "Numbers put in", meaning: "Meaning", formula: "Formula",
    constant: "a constant: {how}", noFormula: "The formula did not arrive: close and open again.", working: "Working it out…",
    reasons: "Reasons", assumptions: "Defaults assumed", unknowns: "Not modelled", invalidated: "What would make this wrong",
    field: "Field", value: "Value", why: "Why", curve: "Context against requests at once", fitsHere: "fits this card", yourCard: "yours",
    curveHint: "Below the line it fits. Longer contexts leave room for fewer requests.",
    packages: "Packages", price: "Price", order: "Package", verdict: "Verdict", headroomShort: "Stays free", details: "Details of",
    toConfirm: "Still to confirm", alternatives: "One change at a time", change: "Change", saves: "Saves", then: "Then", risk: "At risk",
    looked: "{skus} packages looked at: {met} fit, {confirm} to confirm, {excluded} do not fit.", showMore: "Show more", noPrice: "no price",
    duration: "For", copyCurl: "Copy as curl", copyLaunch: "Copy launch command", share: "Copy link", copied: "Copied", language: "Language",
    rules: "Rules of thumb, for comparison", api: "API reference", digest: "Digest of this answer", gpuIndex: "GPU", stage: "stage", parameters: "parameters", active: "active",
    day: "1 day", hour: "1 hour", days3: "3 days", week: "1 week", month: "30 days",
    basis_exact: "exact", basis_derived: "formula", basis_measured: "measured", basis_calibrated: "calibrated on logs", basis_assumed: "assumed", basis_user: "yours", basis_unknown: "unknown",
    p_load: "load weights", p_profile: "trial run", p_kv_allocation: "reserve KV cache", p_cuda_graph: "record graphs", p_prefill: "read prompts", p_decode: "write answers",
    p_idle: "idle", p_generation: "generate", p_forward: "forward", p_backward: "backward", p_optimizer_step: "optimizer step", p_evaluation: "evaluate", p_export: "export", p_merge: "merge",
    c_weights: "model weights", c_kv_cache: "KV cache", c_activations: "activations", c_logits: "logits", c_sampler: "sampler", c_cuda_graphs: "CUDA graphs",
    c_device_context: "GPU driver", c_framework: "framework", c_workspace: "workspace", c_communication: "communication", c_buffers: "buffers", c_recurrent_state: "recurrent state",
    c_lora_adapters: "LoRA adapters", c_adapters: "adapters", c_gradients: "gradients", c_optimizer_states: "optimizer states", c_optimizer_temporary: "optimizer workspace",
    c_master_weights: "master weights", c_fragmentation: "fragmentation", c_user_reserve: "your reserve", c_vision_encoder: "vision encoder", c_draft_model: "draft model",
    c_reference_model: "reference model", c_dequantization: "dequantization", c_gradient_buckets: "gradient buckets", c_unsharded_parameters: "gathered parameters",
};
export const LANGUAGES = {
    en: { name: "English", words: () => Promise.resolve(en) },
    ru: { name: "Русский", words: async () => (await import("./ru.js")).words },
    vi: { name: "Tiếng Việt", words: async () => (await import("./vi.js")).words },
};
let current = en;
export async function speak(language) {
    const known = language in LANGUAGES ? language : "en";
    current = await LANGUAGES[known].words().catch(() => en);
    document.documentElement.lang = known;
}
export function t(key, values = {}) {
    return (current[key] ?? en[key]).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}
export function word(name, kinds = ["c_", "p_", "basis_", "trust_"]) {
    const key = kinds.map((kind) => `${kind}${name}`).find((k) => k in en);
    return key ? t(key) : name.replaceAll("_", " ");
}
