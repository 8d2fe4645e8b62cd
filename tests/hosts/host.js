// SPDX-License-Identifier: Apache-2.0
// A Node.js program that loads a delegate from a shared library, with npm's tfjs-tflite-node:
//   node host.js BINDING.node MODEL DELEGATE.so [KEY=VALUE ...]
// It runs the model on the CPU and on the delegate, and compares the outputs byte by byte.
// Exit code: 0 equal, 3 other outputs.
'use strict';
const fs = require('fs');
const [binding, path, library, ...options] = process.argv.slice(2);
const {Interpreter} = require(binding);
const file = fs.readFileSync(path);
const model = file.buffer.slice(file.byteOffset, file.byteOffset + file.length);

function run(settings) {
  const interpreter = new Interpreter(model, settings);
  const input = interpreter.getInputs()[0].data();
  let state = 1;
  for (let i = 0; i < input.length; i++) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    input[i] = state >>> 16;
  }
  const times = [];
  for (let i = 0; i < 20; i++) {
    const begun = performance.now();
    interpreter.infer();
    times.push(performance.now() - begun);
  }
  times.sort((a, b) => a - b);
  return {output: Array.from(interpreter.getOutputs()[0].data()), time: times[10].toFixed(3)};
}

const cpu = run({threads: 1});
const delegate = {path: library, options: options.map((option) => option.split('='))};
const ours = run({threads: 1, delegate});
const differ = cpu.output.filter((value, i) => value !== ours.output[i]).length;
console.log(`Node.js ${process.version}: CPU ${cpu.time} ms, delegate ${ours.time} ms, ` +
            `${differ} of ${cpu.output.length} bytes differ`);
process.exit(differ || !cpu.output.length ? 3 : 0);
