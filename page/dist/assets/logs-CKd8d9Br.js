import{b as t,E as a}from"./ui-CT8jbBbe.js";function o(){return t(a,{title:"logs"})}export{o as default};
