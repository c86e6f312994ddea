"use strict";

// One episode: what was sent, what came back, and what it was worth, turn by turn.

const LONG = 20000; // characters of a text that are shown before a click shows the rest
let drawing = 0;

async function drawEpisode(row) {
  const mine = ++drawing;
  const parts = await Promise.all(played(row).map(async (side) =>
    sideElement(row, side, await transcript(sides[side].run, row.at[side]))));
  const box = $("episode");
  if (mine !== drawing || !box) return;
  box.replaceChildren(make("div", { class: "sides" }, ...parts));
  box.scrollTop = 0;
  markFound();
}

function sideElement(row, side, episode) {
  const run = runAt(side);
  const { word, tone } = verdict(row, side);
  const value = (name) => column(row, side, name);
  const box = make("div", { class: "side" }, make("h2", {},
    visible(`${view.runs.length > 1 ? `${run.name}: ` : ""}${envOf(row)}, ${run.kind === "train" ? playedFor(row, side) : `episode ${value("index")}`}`)));
  const facts = [make("span", { class: tone }, visible(word)), `reward ${short(value("reward"))}`, factsOf(row, side)];
  box.append(make("p", { class: "facts" }, ...facts.filter(Boolean).flatMap((fact, i) => (i ? [" \u00b7 ", fact] : [fact]))));
  if (episode === null) {
    box.append(make("p", { class: "quiet" }, "The page was made without this transcript; see ludic view --most."));
    return box;
  }
  box.append(aboutEpisode(episode));
  if (episode.error) box.append(make("p", { class: "warn" }, visible(`failed: ${episode.error}`)));
  for (const rollout of episode.rollouts) box.append(...rolloutParts(rollout, episode.rollouts.length));
  return box;
}

/** Seed, arguments and sampling parameters, and the models that were served. */
function aboutEpisode(episode) {
  const calls = episode.rollouts.flatMap((r) => r.steps.flatMap((s) => s.completions.map((c) => c.call).filter(Boolean)));
  const models = [...new Set(calls.map((call) => [call.model, call.fingerprint].filter(Boolean).join(" ")))];
  const lines = { seed: episode.seed, ...prefixed("env", episode.kwargs), ...prefixed("sampling", episode.sampling) };
  const list = Object.entries(lines).map(([key, v]) => `${key}: ${typeof v === "string" ? v : JSON.stringify(v)}`).join("\n");
  return make("div", { class: "about" }, models.length ? make("p", { class: "quiet" }, visible(`model ${models.join(", ")}`)) : null,
    folded(`seed ${episode.seed}, settings`, text(list)));
}

const prefixed = (name, values) => Object.fromEntries(Object.entries(values).map(([key, v]) => [`${name}.${key}`, v]));

function folded(label, ...content) {
  return make("details", {}, make("summary", { class: "label" }, visible(label)), ...content);
}

function labelled(label, content, tone = "") {
  return [make("p", { class: `label ${tone}` }, visible(label)), content];
}

function rolloutParts(rollout, count) {
  const parts = [];
  if (count > 1) parts.push(make("h2", {}, visible(`${rollout.agent} ${rollout.player}`)));
  // A reply is part of the next request, where it need not be shown again.
  let before = [];
  rollout.steps.forEach((step, t) => {
    parts.push(turn(step, t, before));
    before = step.completions.map((completion) => completion.text);
  });
  if (rollout.final) parts.push(...labelled("last observation", text(rollout.final)));
  parts.push(make("p", { class: "facts" }, `total reward ${short(rollout.reward)}`));
  return parts;
}

function turn(step, t, before) {
  const failed = step.action === null;
  const tone = step.reward > 0 ? "good" : step.reward < 0 ? "bad" : "quiet";
  const head = make("h3", { tabindex: "-1" }, `turn ${t + 1}`, make("span", { class: tone }, `reward ${short(step.reward)}`),
    failed ? make("span", { class: "warn" }, "not parsed") : null,
    known(step.weight) ? make("span", { class: "quiet" }, `weight ${short(step.weight)}`) : null,
    step.ended ? make("span", { class: "quiet" }, step.ended) : null,
    make("span", { class: "quiet spent" }, spent(step.completions)));
  const body = [];
  const said = [step.observation, ...before];
  step.completions.forEach((completion, k) => {
    const sent = completion.call ? messagesOf(completion.call, said) : [];
    // The system prompt comes before the observation, results of tools after it.
    const system = sent.filter(({ role }) => role === "system");
    for (const message of system) body.push(folded("system prompt", text(message.text)));
    if (!k && step.observation) body.push(...labelled("observation", text(step.observation)));
    for (const message of sent.filter(({ role }) => role !== "system")) {
      body.push(...labelled(message.label, text(message.text, message.role === "tool" ? "tool" : "")));
    }
    body.push(...completionParts(completion));
    said.push(completion.text);
  });
  if (!step.completions.length && step.observation) body.push(...labelled("observation", text(step.observation)));
  const last = step.completions.at(-1);
  if (!failed && !(last && last.text === step.action)) body.push(...labelled("action", text(step.action, "action")));
  if (failed && step.feedback) body.push(...labelled("feedback", text(step.feedback), "warn"));
  body.push(...infoParts(step.info));
  return make("div", { class: "turn" }, head, ...body);
}

/** Tokens, seconds and cost of a turn. */
function spent(completions) {
  const sum = (values) => (values.length && values.every(known) ? values.reduce((a, b) => a + b, 0) : null);
  const tokens = [0, 1].map((i) => sum(completions.map((c) => c.counts[i])));
  const calls = completions.map((c) => c.call).filter(Boolean);
  const time = sum(calls.map((call) => call.seconds));
  const cost = sum(calls.map((call) => call.cost));
  return [known(tokens[1]) ? `${known(tokens[0]) ? `${whole(tokens[0])} + ` : ""}${whole(tokens[1])} tokens` : "",
    time ? seconds(time) : "", known(cost) ? `cost ${money(cost)}` : ""].filter(Boolean).join(" \u00b7 ");
}

/** The new messages of a request, without those that the page shows as observation or reply. */
function messagesOf(call, said) {
  const tools = new Map(call.messages.flatMap((m) => m.tool_calls || []).map((t) => [t.id, t.function.name]));
  const tool = (message) => message.name || tools.get(message.tool_call_id) || message.tool_call_id || "";
  return call.messages.map((message) => ({
    role: message.role,
    label: message.role === "tool" || message.name ? `result ${tool(message)}` : message.role,
    text: typeof message.content === "string" ? message.content : message.content ? JSON.stringify(message.content) : "",
  })).filter(({ role, text: words }) => words && (role === "system" || !said.includes(words)));
}

/** Parts of the reward, and the rest of the info folded. */
function infoParts(info) {
  const entries = Object.entries(info);
  const rewards = entries.filter(([key]) => key.startsWith("reward/"));
  const others = entries.filter(([key]) => !key.startsWith("reward/"));
  const parts = [];
  if (rewards.length) {
    parts.push(make("p", { class: "label" }, "reward ", ...rewards.map(([key, value]) =>
      make("span", { class: "part" }, visible(`${key.slice(7)} ${typeof value === "number" ? short(value) : value}`)))));
  }
  const line = ([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`;
  if (others.length) parts.push(folded("info", text(others.map(line).join("\n"))));
  return parts;
}

function completionParts(completion) {
  const facts = [completion.finish === "length" ? "cut off by max_tokens" : "",
    completion.version === null ? "" : `version ${completion.version}`].filter(Boolean);
  const parts = [];
  if (completion.prompt) parts.push(folded(completion.kept ? `prompt after the first ${completion.kept} tokens, which the call before has too` : "prompt", text(completion.prompt)));
  if (completion.call) parts.push(requestPart(completion.call));
  if (completion.reasoning) parts.push(folded(`reasoning, ${whole(completion.reasoning.length)} characters`, text(completion.reasoning, "reasoning")));
  const label = ["reply", ...facts].join(", ");
  if (completion.decoded && completion.tokens) parts.push(...labelled(label, tokens(completion)));
  else {
    if (completion.text || !completion.tools.length) parts.push(...labelled(label, text(completion.text, "reply")));
    if (completion.tokens) parts.push(folded("token ids by log-prob", tokens(completion)));
  }
  for (const call of completion.tools) parts.push(...labelled(`calls ${call.name}`, text(call.arguments, "action")));
  return parts;
}

function requestPart(call) {
  const count = call.kept + call.messages.length;
  const about = { model: call.model, messages: count, ...prefixed("usage", call.usage), ...call.parameters };
  const lines = Object.entries(about).map(([key, v]) => `${key}: ${typeof v === "string" ? v : JSON.stringify(v)}`).join("\n");
  const sent = call.messages.map((message) => JSON.stringify(message, null, 1)).join("\n");
  return folded(`request, ${count} messages`, text(lines),
    ...labelled(call.kept ? `messages after the first ${call.kept}, which the request before has too` : "messages", text(sent)));
}

/** The tokens, the redder the less likely they were. */
function tokens(completion) {
  const box = make("pre", { dir: "auto", class: "reply" });
  completion.tokens.slice(0, LONG).forEach((token, i) => {
    const logprob = completion.logprobs[i];
    const span = make("span", { class: "token", title: `log-prob ${logprob}, p ${percent(Math.exp(logprob))}` }, visible(token));
    span.style.setProperty("--surprise", (1 - Math.exp(logprob)).toFixed(3));
    box.append(span);
  });
  return box;
}

/** A text as it is; of a long one the beginning, and a button for the rest. */
function text(words, kind = "") {
  const box = make("pre", { class: kind, dir: "auto" }, visible(words.slice(0, LONG)));
  if (words.length <= LONG) return box;
  const more = make("button", { class: "more", type: "button", onclick: () => {
    box.textContent = visible(words);
    more.remove();
    markFound();
  } }, `show all ${whole(words.length)} characters`);
  return make("div", {}, box, more);
}

/** Mark the text of the search in the transcript, and open what is folded around it. */
function markFound() {
  if (!window.Highlight) return;
  CSS.highlights.delete("found");
  const needle = state.text.toLowerCase();
  if (!needle) return;
  const ranges = [];
  for (const pre of $("episode").querySelectorAll("pre")) {
    const node = pre.childNodes.length === 1 ? pre.firstChild : null;
    if (!node || node.nodeType !== Node.TEXT_NODE) continue;
    const words = node.data.toLowerCase();
    for (let i = words.indexOf(needle); i >= 0 && ranges.length < 1000; i = words.indexOf(needle, i + needle.length)) {
      // Lower case may be longer than the text, such as that of \u0130.
      if (i + needle.length > node.length) break;
      const range = new Range();
      range.setStart(node, i);
      range.setEnd(node, i + needle.length);
      ranges.push(range);
    }
  }
  if (!ranges.length) return;
  CSS.highlights.set("found", new Highlight(...ranges));
  const around = ranges[0].startContainer.parentElement;
  for (let fold = around.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  around.scrollIntoView({ block: "nearest" });
}

/** Go to the next or the previous turn of the open episode. */
function stepTurn(by) {
  const heads = [...document.querySelectorAll("#episode .side:first-child .turn > h3")];
  const now = heads.indexOf(document.activeElement);
  const next = heads[Math.max(0, Math.min(heads.length - 1, now < 0 ? 0 : now + by))];
  if (!next) return;
  next.scrollIntoView({ block: "start" });
  next.focus({ preventScroll: true });
}

function toggleFolds() {
  const folds = [...document.querySelectorAll("#episode details")];
  const open = folds.some((fold) => !fold.open);
  for (const fold of folds) fold.open = open;
}
