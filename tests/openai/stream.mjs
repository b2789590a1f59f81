// Streams of chats with OpenAI's SDK for JavaScript: `stream.mjs PACKAGES BASE_URL TOKENS PROMPTS`, where PACKAGES is the folder of the installed
// SDK. It prints the same as stream.py.

import { createRequire } from 'node:module';

const [packages, baseURL, tokens, prompts] = process.argv.slice(2);
const { OpenAI } = createRequire(`${packages}/`)('openai');
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const all = JSON.parse(prompts);
let missing = all.length;

async function stream(prompt) {
  const seen = { text: '', ids: [], reasons: [], tokens: 0 };
  const chunks = await client.chat.completions.create({
    model: 'demo-model',
    messages: [{ role: 'user', content: prompt }],
    max_tokens: Number(tokens),
    stream: true,
    stream_options: { include_usage: true },
  });
  let isFirst = true;
  for await (const chunk of chunks) {
    if (!seen.ids.includes(chunk.id)) seen.ids.push(chunk.id);
    for (const choice of chunk.choices) {
      seen.text += choice.delta.content ?? '';
      if (choice.finish_reason) seen.reasons.push(choice.finish_reason);
    }
    if (chunk.usage) seen.tokens = chunk.usage.completion_tokens;
    if (isFirst) {
      isFirst = false;
      missing -= 1;
      if (missing === 0) console.log('begun');
    }
  }
  return seen;
}

console.log(JSON.stringify(await Promise.all(all.map(stream))));
