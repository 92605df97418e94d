import{b as t,E as e}from"./ui-CT8jbBbe.js";function o(){return t(e,{title:"models"})}export{o as default};
